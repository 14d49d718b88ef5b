# float words: generic

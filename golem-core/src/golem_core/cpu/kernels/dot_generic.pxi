# integer words: generic

"""How each API writes a conversation, a request and an answer; nothing here serves or computes."""

"""Code that runs inside an evaluation sandbox, next to a candidate's.

It imports nothing of the package but itself. A guest is started with a verb and its orders as JSON. What
is secret (the arguments of a call) and what is given back travels in descriptors that were opened
outside, and is read outside when every process of the sandbox is dead: an answer is eight bytes of
length, then JSON.
"""

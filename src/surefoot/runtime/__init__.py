"""What runs a model: the `Runtime` protocol, libllama behind it, and a simulated one.

Tokens in, logits and token texts out. Nothing here decides which token comes next.
"""

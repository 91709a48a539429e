"""How does it compare with other samplers?"""

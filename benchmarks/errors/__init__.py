"""Is the stated error the true one?"""

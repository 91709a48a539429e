"""Where does it break?"""

"""Values as arrays and JSON, and folders of them that a kill leaves whole."""

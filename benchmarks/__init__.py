"""What was measured, in folders by question; `python benchmarks` lists it."""

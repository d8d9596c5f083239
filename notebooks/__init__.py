"""Text notebooks, their executed copies, and what builds them."""

"""The demo: writes, compacts and verifies tables of real flights."""

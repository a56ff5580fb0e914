"""A minimal Flower app for the launcher's tests."""

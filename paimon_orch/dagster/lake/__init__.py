"""The asset whose metadata is the doctor's report of a lake."""

"""The verdict on a table: what is wrong, what a scan costs, and which command helps."""

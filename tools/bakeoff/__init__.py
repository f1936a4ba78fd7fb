"""The bake-off: the same planted faults given to stock tools and to ropewalk."""

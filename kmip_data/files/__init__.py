"""Write, replace, remove and lock files safely; errors of disks."""

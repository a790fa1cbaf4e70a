"""The street network: which ways are streets, their construction, simplification and speeds."""

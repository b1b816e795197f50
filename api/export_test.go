package api

// What tests outside of the package may see of its inside.

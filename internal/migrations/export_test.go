package migrations

// UpFrom is Up with the files of a folder.
var UpFrom = up

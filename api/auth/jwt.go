package auth

// JWT says whose JSON Web Tokens are taken. The zero value takes none.
type JWT struct{}

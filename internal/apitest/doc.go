// Package apitest is what the tests of the API's packages share: a Fake that
// plays Redis and MySQL, a server over it or over a real Redis, and checks of
// answers against the contract and the OpenAPI document.
package apitest

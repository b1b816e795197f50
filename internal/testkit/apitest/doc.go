// Package apitest is shared by the tests of the API's packages. It has a Fake
// of Redis and MySQL, a server over it or over a real Redis, and checks of
// replies against the contract and the OpenAPI document.
package apitest

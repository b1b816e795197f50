// Package wire is what the routes of the API share: the problem table,
// request bodies and their JSON, and the words of the OpenAPI document.
package wire

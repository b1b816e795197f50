// Package wire is what the API's routes share: the problem table, request
// bodies and their JSON, and parts of the OpenAPI document.
package wire

// Package tidy holds the house rules that no linter can state, as tests: the
// headers of the Lua scripts, the sizes of files and types, package comments,
// the words of the glossary, invariants that are listed and tested, metrics that
// the operator's handbook knows, links, code and tests that pages name, what the
// sinks guarantee, and no trace of anyone's machine.
//
// It has no code; the rules about imports and style are in .golangci.yml.
package tidy

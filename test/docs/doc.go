// Package docs types what the documentation tells its readers to type: each command of each
// page, in its order, in an empty folder and against real servers, and compares what it
// answers with what the page shows. What cannot be typed here is listed with the reason.
// Configurations that pages show are validated.
//
// The rule that tells code from code: an indented block is for a shell, a fenced one says its
// language. In a block that shows answers, what is typed begins with "$ ".
//
// It has no code. The Go of pages is from files that compile, see internal/tidy.
package docs

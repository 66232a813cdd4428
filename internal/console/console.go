// Package console is the page for operators: one document with its style and its
// scripts, embedded as they are, without a build and without anything from elsewhere.
// All that it shows and does goes through the API, with the reader's own rights.
//
// It must calm nobody wrongly: a figure is shown with its age, what is not known is shown as
// unknown and never as 0, and only what has come over the stream, and how old that was, makes
// it live. What others have written, such as an id, is shown by dom.js' given, which writes
// out what it hides. A change that cannot be undone is never what Enter in a field does, and
// its button says what it does.
package console

import (
	"embed"
	"io/fs"
	"net/http"
)

//go:embed page
var page embed.FS

// policy lets the page load its own files and speak to its own bridge, and nobody
// show it in a frame. No script or style may stand in a document.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handler serves the page. All its addresses are relative, so a proxy may put it, and
// the API beside it, behind any path that ends with a slash.
func Handler() http.Handler {
	root, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // The folder is part of the program.
	}
	files := http.FileServerFS(root)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "only GET is allowed", http.StatusMethodNotAllowed)
			return
		}
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cache-Control", "no-cache") // A new version of the bridge has a new page.
		files.ServeHTTP(w, r)
	})
}

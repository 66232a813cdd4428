// Package faults reads lists of faults, each a change of the code, and gives the compiler the changed files in
// place of those of the tree, which stays as it is.
package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Fault is an entry of a list: its line "== Head | Name", its fields, and what it changes.
type Fault struct {
	Head, Name string
	Fields     map[string]string
	Changes    []Change
}

// Change replaces one text of a file by another.
type Change struct{ File, Was, Is string }

var (
	// comment is a line of a list that says why.
	comment = regexp.MustCompile(`(?m)^#.*\n`)
	// field is a line "name: value" below an entry's first line.
	field = regexp.MustCompile(`^([a-z]+): (.+)$`)
)

// Read reads a list. An entry is a line "== Head | Name", fields, a file, the text in it, and the text that replaces
// that; after a line that begins with "=+" another file and its texts. A list ends with "== end".
func Read(list string) (all []Fault, err error) {
	for part := range strings.SplitSeq("\n"+list, "\n== ") {
		first, rest, _ := strings.Cut(part, "\n")
		head, name, isFault := strings.Cut(first, " | ")
		if !isFault {
			continue
		}
		f := Fault{Head: head, Name: name, Fields: map[string]string{}}
		rest = comment.ReplaceAllString(rest, "")
		for {
			line, more, _ := strings.Cut(rest, "\n")
			found := field.FindStringSubmatch(line)
			if found == nil {
				break
			}
			f.Fields[found[1]], rest = found[2], more
		}
		for text := range strings.SplitSeq(rest, "\n=+ ") {
			file, words, okFile := strings.Cut(text, "\n--- was\n")
			was, is, okChange := strings.Cut(words, "\n+++ is")
			if okFile && okChange {
				f.Changes = append(f.Changes, Change{file, was, strings.TrimPrefix(is, "\n")})
			} else if text != "" || len(f.Fields) == 0 {
				return nil, fmt.Errorf("%q has no file, or no change", first)
			}
		}
		all = append(all, f)
	}
	return all, nil
}

// In is the text with the change in it. What is replaced must be there exactly once.
func (c Change) In(text string) (string, error) {
	if n := strings.Count(text, c.Was); n != 1 {
		return "", fmt.Errorf("%s has %q %d times, want once", c.File, c.Was, n)
	}
	return strings.Replace(text, c.Was, c.Is, 1), nil
}

// Apply is what the changes make of their files.
func (f *Fault) Apply() (texts map[string]string, err error) {
	texts = map[string]string{}
	for _, c := range f.Changes {
		if _, isChanged := texts[c.File]; !isChanged {
			text, err := os.ReadFile(c.File)
			if err != nil {
				return nil, err
			}
			texts[c.File] = string(text)
		}
		if texts[c.File], err = c.In(texts[c.File]); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// Overlay says which files the compiler takes in place of which, as go build -overlay reads it.
type Overlay struct{ Replace map[string]string }

// ReadOverlay reads the overlay of a file; "" is an empty one.
func ReadOverlay(file string) (o Overlay, err error) {
	o.Replace = map[string]string{}
	if file == "" {
		return o, nil
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	return o, err
}

// Put writes a text into dir, and has the compiler take it in place of a file of the tree.
func (o Overlay) Put(dir, file, text string) error {
	path, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	o.Replace[path] = filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
	return os.WriteFile(o.Replace[path], []byte(text), 0o600)
}

// Write writes the overlay to dir, and returns its file.
func (o Overlay) Write(dir string) (file string, err error) {
	file = filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(o)
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	return file, err
}

// Write writes the files that the fault changes to dir, beside those of the overlay base, which may be "", and
// returns the file of the overlay.
func (f *Fault) Write(base, dir string) (file string, err error) {
	texts, err := f.Apply()
	if err != nil {
		return "", err
	}
	o, err := ReadOverlay(base)
	if err != nil {
		return "", err
	}
	for name, text := range texts {
		if err := o.Put(dir, name, text); err != nil {
			return "", err
		}
	}
	return o.Write(dir)
}

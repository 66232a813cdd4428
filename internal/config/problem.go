package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	// File is the path of a queue file; empty for the main file.
	File string
	// Line in the file, from 1; 0 if an environment variable gave the value, or the file cannot be read.
	Line int
	// Env is the name of that variable.
	Env string
	// Key is the path of the key, its parts joined by dots; empty if the file is no YAML.
	Key string
	// Text is the problem: the value and the limit. It holds no secret.
	Text string
}

// Error returns `line N: key: text`, behind the file if it is a queue file.
func (p *Problem) Error() string {
	var parts []string
	if p.File != "" {
		parts = append(parts, p.File)
	}
	switch {
	case p.Env != "":
		parts = append(parts, "env "+p.Env)
	case p.Line > 0:
		parts = append(parts, fmt.Sprintf("line %d", p.Line))
	}
	if p.Key != "" {
		parts = append(parts, p.Key)
	}
	return strings.Join(append(parts, p.Text), ": ")
}

// place is where a key was given.
type place struct {
	line int
	env  string
}

// problems collects the problems, and knows where each key was given.
type problems struct {
	file   string // a queue file; empty for the main one
	list   []*Problem
	places map[string]place
	// bad are the paths at or below which something is wrong.
	bad map[string]bool
	// single are the paths of sections that are one object where names are possible.
	single map[string]bool
}

func newProblems() *problems { return newProblemsOf("") }

func newProblemsOf(queueFile string) *problems {
	return &problems{file: queueFile, places: map[string]place{}, bad: map[string]bool{}, single: map[string]bool{}}
}

// add reports a problem of the key at a path. The place is that of the key
// itself or, if it was not given, of the section that should hold it.
func (p *problems) add(path, format string, args ...any) {
	p.addAt(p.place(path), path, format, args...)
}

func (p *problems) addAt(at place, path, format string, args ...any) {
	p.list = append(p.list, &Problem{File: p.file, Line: at.line, Env: at.env, Key: path, Text: fmt.Sprintf(format, args...)})
	path, _, _ = strings.Cut(path, "[")
	for path != "" {
		p.bad[path] = true
		path = parent(path)
	}
}

// reported reports whether a problem at or below a path is listed already.
func (p *problems) reported(path string) bool { return p.bad[path] }

// parent returns the path without its last key.
func parent(path string) string {
	return path[:max(0, strings.LastIndexByte(path, '.'))]
}

func (p *problems) place(path string) place {
	for ; path != ""; path = parent(path) {
		if at, ok := p.places[path]; ok {
			return at
		}
	}
	return place{line: 1}
}

// given reports whether the key at a path has a value of its own.
func (p *problems) given(path string) bool {
	_, ok := p.places[path]
	return ok
}

// sorted are all problems, those of the environment first, then by line.
func (p *problems) sorted() []*Problem {
	slices.SortStableFunc(p.list, func(a, b *Problem) int { return cmp.Compare(a.Line, b.Line) })
	return p.list
}

// err joins all problems; nil if there are none.
func (p *problems) err() error { return JoinProblems(p.sorted()) }

// JoinProblems is the error of several problems; nil if there are none.
func JoinProblems(list []*Problem) error {
	errs := make([]error, len(list))
	for i, problem := range list {
		errs[i] = problem
	}
	return errors.Join(errs...)
}

// join extends a path by one key.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

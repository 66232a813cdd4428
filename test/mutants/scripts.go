package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// change is one of a text: what stands there, and what is put in its place.
type change struct {
	what string
	was  *regexp.Regexp
	is   string
}

// inScript are the changes of a script.
var inScript = []change{
	{"equal", regexp.MustCompile(`~=`), "=="},
	{"unequal", regexp.MustCompile(` == `), " ~= "},
	{"limit of <=", regexp.MustCompile(` <= `), " < "},
	{"limit of <", regexp.MustCompile(` < `), " <= "},
	{"limit of >=", regexp.MustCompile(` >= `), " > "},
	{"limit of >", regexp.MustCompile(` > `), " >= "},
	{"or", regexp.MustCompile(` and `), " or "},
	{"and", regexp.MustCompile(` or `), " and "},
	{"negate", regexp.MustCompile(`\bif (.+?) then`), "if not ($1) then"},
	{"minus", regexp.MustCompile(` \+ ([^0]|0\w)`), " - $1"}, // + 0 makes a number of a text, as - 0 does.
	{"plus", regexp.MustCompile(` - `), " + "},
	{"without", regexp.MustCompile(`(?m)^\s*(redis\.p?call\(.*\)|tags\(.*\)|\w+ = \w+ [+-] \w+)$`), ""},
}

// scriptMutants are those of a script. The simulation's Redis replaces the text before and
// with the change, which stands in the script once since it begins with it.
func scriptMutants(file, text string, first int) (all []mutant) {
	verb := strings.TrimSuffix(filepath.Base(file), ".lua")
	if filepath.Base(filepath.Dir(file)) == "shared" {
		verb = "shared"
	}
	for _, c := range inScript {
		for _, at := range c.was.FindAllStringSubmatchIndex(text, -1) {
			line := text[strings.LastIndexByte(text[:at[0]], '\n')+1:]
			line, _, _ = strings.Cut(line, "\n")
			if c.what == "without" {
				line = strings.TrimSpace(text[at[0]:at[1]])
			}
			if strings.Contains(text[strings.LastIndexByte(text[:at[0]], '\n')+1:at[0]], "--") {
				continue // It is in a comment.
			}
			changed := text[:at[0]] + string(c.was.ExpandString(nil, c.is, text, at))
			fault, err := json.Marshal(map[string]string{"verb": verb, "was": text[:at[1]], "is": changed})
			if err != nil {
				continue // Texts can be encoded.
			}
			line = strings.TrimSpace(line)
			all = append(all, mutant{
				first + len(all), file, 1 + strings.Count(text[:at[0]], "\n") + strings.Count(text[at[0]:at[1]], "\n"),
				fmt.Sprintf("%s: %s", c.what, line[:min(len(line), 100)]), "SIM_FAULT=" + string(fault), changed + text[at[1]:],
			})
		}
	}
	return all
}

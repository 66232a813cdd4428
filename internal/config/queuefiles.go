package config

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// QueueFiles are files in which others declare queues, and what those may ask for.
type QueueFiles struct {
	Files     []string `yaml:"files" doc:"Paths of the files, from the folder of this one; * stands for any characters of a name. Required, but the section api has none: it is for the queues that are declared by the API."`
	Prefix    string   `yaml:"prefix" doc:"What the names of their queues begin with; * stands for the file's name without its ending, so that each file has names of its own. Default: any name."`
	Sinks     []string `yaml:"sinks" doc:"Sinks that their queues may name. Default: all."`
	MaxQueues int      `yaml:"max_queues" default:"100" min:"1" max:"10000" doc:"Most queues of a file, and most that are declared by the API."`
	MaxShards int      `yaml:"max_shards" default:"1024" min:"1" max:"1024" doc:"Most shards of a queue."`
	MaxRate   int      `yaml:"max_rate" default:"0" min:"0" max:"1000000" doc:"Largest rate.messages of a queue, and the rate of one that gives none. 0: no limit."`
	MaxBudget Size     `yaml:"max_budget" default:"0" min:"0" doc:"Largest budget.bytes of a queue, and the budget of one that gives none. 0: no limit."`
}

// APISection is the section of queue_files for the queues that are declared by the API.
const APISection = "api"

const (
	// mostQueueFiles bounds what is read every few seconds.
	mostQueueFiles = 1000
	// apiPath begins the path of what stands for the file of a declared queue: each counts as a file with one queue.
	apiPath = "api:"
)

// queueFile is the content of a queue file.
type queueFile struct {
	Owner    string           `yaml:"owner"`
	Contacts []string         `yaml:"contacts"`
	Queues   map[string]Queue `yaml:"queues" required:"true"`
}

// Included is what the queue files of a configuration held at one time, and what was declared by the API.
type Included struct {
	files []includedFile
	// unread are the sections whose folders could not be read, and why.
	unread   map[string]error
	declared map[string]string
	// filesDigest is of the files alone, digest of all.
	filesDigest, digest [sha256.Size]byte
}

type includedFile struct {
	// section of queue_files that names it, the first of several.
	section, path string
	content       []byte
	err           error
}

// Equal reports whether nothing has changed between two times.
func (in Included) Equal(other Included) bool { return in.digest == other.digest }

// EqualFiles is Equal for the files alone.
func (in Included) EqualFiles(other Included) bool { return in.filesDigest == other.filesDigest }

// Included is what the configuration was made with.
func (c *Config) Included() Included { return c.included }

// Has reports whether the configuration was made with this content of its queue files.
func (c *Config) Has(in Included) bool { return c.included.Equal(in) }

// Include reads the queue files that the configuration names. What is declared by the API is as it was.
func (c *Config) Include() Included { return c.Declare(c.included.declared) }

// Declare is Include with what is declared by the API: the queues by their names, each as JSON.
func (c *Config) Declare(queues map[string]string) Included {
	in := Included{unread: map[string]error{}, declared: queues}
	digest := sha256.New()
	folder := filepath.Dir(c.origin.path)
	for _, section := range slices.Sorted(maps.Keys(c.QueueFiles)) {
		paths, err := list(folder, c.QueueFiles[section].Files)
		if err != nil {
			in.unread[section] = err
			_, _ = digest.Write(fmt.Appendf(nil, "%q %q\n", section, err.Error()))
			continue
		}
		for _, path := range paths {
			file := includedFile{section: section, path: path}
			file.content, file.err = readFile(path)
			if len(in.files) >= mostQueueFiles {
				file.content, file.err = nil, fmt.Errorf("there are more than %d queue files", mostQueueFiles)
			}
			in.files = append(in.files, file)
			_, _ = digest.Write(fmt.Appendf(nil, "%q %q %q %v\n", section, path, file.content, file.err))
		}
	}
	digest.Sum(in.filesDigest[:0])
	if c.IsDeclaredByAPI() {
		for _, name := range slices.Sorted(maps.Keys(queues)) {
			file := declaredFile(name, queues[name])
			in.files = append(in.files, file)
			_, _ = digest.Write(fmt.Appendf(nil, "%q %q\n", file.path, file.content))
		}
	}
	digest.Sum(in.digest[:0])
	return in
}

// IsDeclaredByAPI reports whether queues may be declared by the API.
func (c *Config) IsDeclaredByAPI() bool {
	_, is := c.QueueFiles[APISection]
	return is
}

// isDeclared reports whether it is a queue that was declared by the API, and no file.
func (s queueSource) isDeclared() bool { return s.section == APISection }

// list returns the files that patterns name, sorted.
func list(folder string, patterns []string) (paths []string, err error) {
	for _, pattern := range patterns {
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(folder, pattern)
		}
		// Glob is silent about a folder that cannot be read, and its files would count as deleted.
		if _, err := os.ReadDir(fixedFolder(pattern)); err != nil {
			return nil, err
		}
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", pattern, err)
		}
		paths = append(paths, found...)
	}
	slices.Sort(paths)
	return slices.Compact(paths), nil
}

// fixedFolder is the longest folder of a pattern without a wildcard.
func fixedFolder(pattern string) string {
	folder := filepath.Dir(pattern)
	for strings.ContainsAny(folder, `*?[\`) {
		folder = filepath.Dir(folder)
	}
	return folder
}

// FileErrors are the problems of the queue files: such a file counts as it was before, and
// one that was never right has no queues.
func (c *Config) FileErrors() []*Problem { return c.wrong }

// WrongFiles counts the queue files that have problems.
func (c *Config) WrongFiles() int {
	files := map[string]bool{}
	for _, p := range c.wrong {
		files[p.File] = true
	}
	return len(files)
}

// QueueFile is the file that declares the queue; empty if it is the main one. It is [DeclaredAs] of the queue if that was declared by the API.
func (c *Config) QueueFile(queue string) string { return c.from[queue].path }

// DeclaredAs is what stands for the file of a queue that was declared by the API, also in [Problem.File].
func DeclaredAs(queue string) string { return apiPath + queue }

// Declarations are the queues of a queue file as they are declared by the API: each has the file's owner and contacts, unless it has its
// own. What the queues say is not checked.
func Declarations(content []byte) (map[string]map[string]any, error) {
	found := newProblems()
	d := decoder{problems: found}
	top := d.mapping("", document(content, found))
	d.refuse("", top.keys, reflect.ValueOf(queueFile{}), fieldsOf(reflect.TypeFor[queueFile]()))
	var file struct {
		Owner    string
		Contacts []string
		Queues   map[string]map[string]any
	}
	for key, into := range map[string]any{"owner": &file.Owner, "contacts": &file.Contacts, "queues": &file.Queues} {
		if node := top.values[key]; node != nil {
			if err := node.Decode(into); err != nil {
				found.add(key, "%s", strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\n", " "), "yaml: "))
			}
		}
	}
	if len(file.Queues) == 0 && len(found.list) == 0 {
		found.add("queues", "missing, must be given")
	}
	if err := found.err(); err != nil {
		return nil, err
	}
	for name, queue := range file.Queues {
		if queue == nil {
			queue = map[string]any{}
			file.Queues[name] = queue
		}
		if _, hasOwn := queue["owner"]; !hasOwn && file.Owner != "" {
			queue["owner"] = file.Owner
		}
		if _, hasOwn := queue["contacts"]; !hasOwn && len(file.Contacts) > 0 {
			queue["contacts"] = file.Contacts
		}
	}
	return file.Queues, nil
}

// FileOf is the file that declares the queue, the main one among them; empty if none does.
func (c *Config) FileOf(queue string) string {
	_, isThere := c.Queues[queue]
	switch from := c.from[queue]; {
	case !isThere || from.isDeclared():
		return ""
	case from.path != "":
		return from.path
	}
	return c.mainFile()
}

// CheckDeclared returns what is wrong with a queue that is to be declared by the API, as JSON. It is valid by itself then, and what
// another file says of the name is told by [Config.FileOf].
func (c *Config) CheckDeclared(queue, declaration string) []*Problem {
	return c.decodeQueues(declaredFile(queue, declaration), c.included.files).problems.sorted()
}

// HasDeclared reports whether this declaration of a queue by the API is in force.
func (c *Config) HasDeclared(queue, declaration string) bool {
	is, isThere := c.included.declared[queue]
	return isThere && is == declaration && c.from[queue].isDeclared() &&
		!slices.ContainsFunc(c.wrong, func(p *Problem) bool { return p.File == DeclaredAs(queue) })
}

// declaredFile is what stands for the file of a queue that was declared by the API.
func declaredFile(queue, declaration string) includedFile {
	return includedFile{section: APISection, path: DeclaredAs(queue), content: fmt.Appendf(nil, `{"queues":{%q:%s}}`, queue, declaration)}
}

// queueSource is where a queue was declared.
type queueSource struct{ section, path string }

// part is what one queue file contributes.
type part struct {
	queueSource

	problems *problems
	queues   map[string]Queue
	// isKept: it has problems, or cannot be read, so these are its queues as they were before.
	isKept bool
}

// With is the configuration with another content of its queue files. A file with a problem
// counts as it was before, as a whole; the others do not depend on it.
func (c *Config) With(in Included) *Config { return c.own().join(in, c) }

// own is the configuration without what queue files declare.
func (c *Config) own() *Config {
	own := *c
	own.Queues = maps.Clone(c.Queues)
	maps.DeleteFunc(own.Queues, func(name string, _ Queue) bool { _, isIncluded := c.from[name]; return isIncluded })
	own.from, own.wrong = nil, nil
	return &own
}

// join adds the queues of the files. before is what was in force; nil at a start.
func (c *Config) join(in Included, before *Config) *Config {
	if before == nil {
		before = &Config{}
	}
	parts := c.parts(in, before)
	// One that goes back to what it was may be in the way of another.
	for isSettled := false; !isSettled; {
		c.findConflicts(parts)
		isSettled = true
		for _, p := range parts {
			if !p.isKept && len(p.problems.list) > 0 {
				p.keep(before)
				isSettled = false
			}
		}
	}
	next := *c
	next.included = Included{declared: in.declared, filesDigest: in.filesDigest, digest: in.digest}
	for _, file := range in.files {
		next.included.files = append(next.included.files, includedFile{section: file.section, path: file.path})
	}
	next.from, next.Queues = map[string]queueSource{}, maps.Clone(c.Queues)
	if next.Queues == nil {
		next.Queues = map[string]Queue{}
	}
	for _, p := range parts {
		for _, problem := range p.problems.sorted() {
			if p.isDeclared() {
				problem.Line = 0 // It has one line.
			}
			next.wrong = append(next.wrong, problem)
		}
		for name, queue := range p.queues {
			_, isOwn := c.Queues[name]
			if _, isOfFile := next.from[name]; isOfFile && p.isDeclared() {
				continue // A file has taken the name.
			}
			if !isOwn {
				next.Queues[name], next.from[name] = queue, p.queueSource
			}
		}
	}
	return &next
}

// parts are the files, those that are gone among them, by path.
func (c *Config) parts(in Included, before *Config) (parts []*part) {
	sections := map[string][]string{}
	for _, file := range in.files {
		sections[file.path] = append(sections[file.path], file.section)
	}
	seen := map[string]bool{}
	for _, file := range in.files {
		if seen[file.path] {
			continue
		}
		seen[file.path] = true
		p := c.decodeQueues(file, in.files)
		if all := sections[file.path]; len(all) > 1 {
			p.problems.addAt(place{}, "", "is named by queue_files.%s", strings.Join(all, " and queue_files."))
		}
		parts = append(parts, p)
	}
	for _, of := range before.from {
		if seen[of.path] {
			continue
		}
		seen[of.path] = true
		p := &part{queueSource: of, problems: newProblemsOf(of.path)}
		if in.unread[of.section] != nil {
			p.keep(before)
		}
		parts = append(parts, p)
	}
	for section, err := range in.unread {
		p := &part{queueSource: queueSource{section: section}, problems: newProblemsOf("queue_files." + section)}
		p.problems.addAt(place{}, "", "%v", err)
		parts = append(parts, p)
	}
	for _, p := range parts {
		if len(p.problems.list) > 0 {
			p.keep(before)
		}
	}
	slices.SortFunc(parts, func(a, b *part) int {
		if a.isDeclared() != b.isDeclared() {
			return map[bool]int{false: -1, true: 1}[a.isDeclared()] // A file counts before what was declared by the API.
		}
		return strings.Compare(a.path, b.path)
	})
	return parts
}

// keep has a part be as it was before.
func (p *part) keep(before *Config) {
	p.isKept, p.queues = true, map[string]Queue{}
	for name, of := range before.from {
		if of.path == p.path {
			p.queues[name] = before.Queues[name]
		}
	}
}

// findConflicts finds queues that are declared twice.
func (c *Config) findConflicts(parts []*part) {
	files := map[string][]*part{}
	for _, p := range parts {
		for name := range p.queues {
			files[name] = append(files[name], p)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		_, isOwn := c.Queues[name]
		for _, p := range files[name] {
			if p.isKept {
				continue
			}
			if isOwn {
				p.problems.add("queues."+name, "is declared in %s, too", c.mainFile())
			}
			for _, other := range files[name] {
				if other != p && (p.isDeclared() || !other.isDeclared()) {
					p.problems.add("queues."+name, "is declared in %s, too", other.path)
				}
			}
		}
	}
}

// mainFile is what messages call the main file.
func (c *Config) mainFile() string {
	if c.origin.path == "" {
		return "the main file"
	}
	return c.origin.path
}

// decodeQueues reads one file of all.
func (c *Config) decodeQueues(file includedFile, all []includedFile) *part {
	found := newProblemsOf(file.path)
	p := &part{queueSource: queueSource{file.section, file.path}, problems: found}
	if file.err != nil {
		found.addAt(place{}, "", "cannot be read: %v", file.err)
		return p
	}
	root := document(file.content, found)
	if len(found.list) > 0 {
		return p
	}
	if root != nil && root.Kind != yaml.MappingNode {
		found.addAt(place{line: root.Line}, "", "is %s, must be a section of keys", kindName(root))
		return p
	}
	var content queueFile
	// References could bring secrets of the bridge to the owner of the file.
	d := decoder{problems: found, expander: expander{isClosed: true}}
	d.structure("", root, reflect.ValueOf(&content).Elem())
	p.queues = content.Queues
	rules := c.QueueFiles[file.section]
	if n := len(p.queues); n > rules.MaxQueues {
		found.add("queues", "has %d queues, queue_files.%s.max_queues allows %d", n, file.section, rules.MaxQueues)
	}
	check := checker{problems: found, config: c}
	check.ownership("", content.Owner, content.Contacts)
	for _, name := range slices.Sorted(maps.Keys(p.queues)) {
		queue := p.queues[name]
		check.prefix(name, file, all)
		check.included("queues."+name, &queue, rules, "queue_files."+file.section)
		check.queue("queues."+name, queue)
		queue.Owner = cmp.Or(queue.Owner, content.Owner)
		if len(queue.Contacts) == 0 {
			queue.Contacts = content.Contacts
		}
		p.queues[name] = queue
	}
	return p
}

// prefix checks that the name of a queue is one that its file may give.
func (c checker) prefix(name string, file includedFile, all []includedFile) {
	own := c.prefixOf(file)
	if !strings.HasPrefix(name, own) {
		c.add("queues."+name, "the name must begin with %q, by queue_files.%s.prefix", own, file.section)
	}
	for _, other := range all {
		if other.section == APISection {
			continue
		}
		// With the prefix *-, names that begin with a-b- are those of a-b.yaml, and not of a.yaml.
		if theirs := c.prefixOf(other); len(theirs) > len(own) && strings.HasPrefix(name, theirs) {
			c.add("queues."+name, "names that begin with %q are those of %s", theirs, other.path)
		}
	}
}

func (c checker) prefixOf(file includedFile) string {
	base := strings.TrimSuffix(filepath.Base(file.path), filepath.Ext(file.path))
	return strings.ReplaceAll(c.config.QueueFiles[file.section].Prefix, "*", base)
}

// included checks what the main file allows a queue of a file, and gives it the most of what
// it may not have without a limit. allows is the path of the section that says so.
func (c checker) included(path string, queue *Queue, rules QueueFiles, allows string) {
	if len(rules.Sinks) > 0 && queue.Sink != "" && !slices.Contains(rules.Sinks, queue.Sink) {
		c.add(path+".sink", "%q is not allowed, %s.sinks has %s", queue.Sink, allows, strings.Join(rules.Sinks, ", "))
	}
	if queue.Compensation != "" && queue.Compensation != noCompensation {
		c.add(path+".compensation", "%q: only the main file may name a topic, a queue file may say %s", queue.Compensation, noCompensation)
	}
	bound(c, path+".shards", &queue.Shards, rules.MaxShards, allows+".max_shards")
	bound(c, path+".rate.messages", &queue.Rate.Messages, rules.MaxRate, allows+".max_rate")
	bound(c, path+".budget.bytes", &queue.Budget.Bytes, rules.MaxBudget, allows+".max_budget")
	if rules.MaxBudget > 0 && queue.Budget.Policy == BudgetWarn {
		c.add(path+".budget.policy", "%s is not allowed, since %s.max_budget limits the budget", BudgetWarn, allows)
	}
}

// bound refuses a value above the most, and gives a key that was left out, or is 0 for no
// limit, the most. A most of 0 is no limit.
func bound[T ~int](c checker, path string, value *T, most T, allows string) {
	switch {
	case most == 0 || *value != 0 && *value <= most:
	case *value > most && c.given(path):
		c.add(path, "%v is too large, %s allows %v", *value, allows, most)
	default:
		*value = most
	}
}

const (
	mostContacts   = 20
	longestContact = 200 // bytes
)

// ownership checks who a queue belongs to.
func (c checker) ownership(path, owner string, contacts []string) {
	if key := join(path, "owner"); len(owner) > longestContact && !c.reported(key) {
		c.add(key, "has %d bytes, allowed are %d", len(owner), longestContact)
	}
	key := join(path, "contacts")
	if c.reported(key) {
		return
	}
	if len(contacts) > mostContacts {
		c.add(key, "%d are named, allowed are %d", len(contacts), mostContacts)
	}
	for _, contact := range contacts {
		if len(contact) > longestContact || contact == "" {
			c.add(key, "%.20q… has %d bytes, allowed are 1 to %d", contact, len(contact), longestContact)
		}
	}
}

// queueFiles checks the sections of queue files themselves.
func (c checker) queueFiles() {
	for _, name := range slices.Sorted(maps.Keys(c.config.QueueFiles)) {
		files, path := c.config.QueueFiles[name], "queue_files."+name
		switch {
		case name != APISection && len(files.Files) == 0 && !c.reported(path+".files"):
			c.add(path+".files", "missing, must be given")
		case name == APISection && len(files.Files) > 0:
			c.add(path+".files", "is not allowed: the section %s is for the queues that are declared by the API", APISection)
		case name == APISection && strings.Contains(files.Prefix, "*"):
			c.add(path+".prefix", "%q: * stands for a file's name, and the section %s has no files", files.Prefix, APISection)
		}
		for _, pattern := range files.Files {
			if _, err := filepath.Match(pattern, ""); err != nil {
				c.add(path+".files", "%q: %v", pattern, err)
			}
		}
		for _, sink := range files.Sinks {
			if _, ok := c.config.Sinks[sink]; !ok && len(c.config.Sinks) > 0 {
				c.add(path+".sinks", "%q is no sink, there are: %s", sink, strings.Join(slices.Sorted(maps.Keys(c.config.Sinks)), ", "))
			}
		}
	}
	switch {
	case len(c.config.Queues) > 0 || c.reported("queues"):
	case len(c.config.Outbox) > 0: // Its relays begin with some queue, even if all queue files are wrong.
		c.add("queues", "missing, must be given beside an outbox")
	case len(c.config.QueueFiles) == 0:
		c.add("queues", "missing, must be given, or queue_files")
	}
}

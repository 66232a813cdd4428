package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Root finds the repository's root, the first folder above the working one
// with our go.mod.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find repository: %w", err)
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module github.com/delaybridge/delaybridge\n") {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("find repository: no go.mod of delaybridge above the working folder")
		}
		dir = parent
	}
}

// Cached returns the path of .cache/name in the repository's root, filled once for a version: a
// stamp beside it says which. Concurrent test processes wait for each other.
func Cached(root, name, version string, fill func(path string) error) (string, error) {
	path := filepath.Join(root, ".cache", name)
	if isVersion(path, version) {
		return path, nil
	}
	return path, locked(path, func() error {
		if isVersion(path, version) {
			return nil // another process did it meanwhile
		}
		if err := fill(path); err != nil {
			return err
		}
		if err := os.WriteFile(path+".version", []byte(version), 0o644); err != nil {
			return fmt.Errorf("stamp cache: %w", err)
		}
		return nil
	})
}

// Build compiles a command of the repository with these flags into dir, and returns the program's path. It is
// linked in .cache/built, and anew only where something has changed: a link takes longer than most tests.
func Build(ctx context.Context, target, dir string, flags ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(strings.Join(flags, "\x00")))
	program := filepath.Join(dir, filepath.Base(target))
	built := filepath.Join(root, ".cache", "built", filepath.Base(target)+"-"+hex.EncodeToString(sum[:4]))
	return program, locked(built, func() error {
		words := append(append([]string{"build", "-C", root}, flags...), "-o", built, target)
		if out, err := exec.CommandContext(ctx, "go", words...).CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", target, err, out)
		}
		if out, err := exec.CommandContext(ctx, "cp", built, program).CombinedOutput(); err != nil {
			return fmt.Errorf("copy %s: %w\n%s", built, err, out)
		}
		return nil
	})
}

// locked runs one function at a time for a path, among all processes, in a folder that exists then.
func locked(path string, run func() error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make cache: %w", err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("lock cache: %w", err)
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock cache: %w", err)
	}
	return run()
}

func isVersion(path, version string) bool {
	if _, err := os.Stat(path); err != nil {
		return false
	}
	have, err := os.ReadFile(path + ".version")
	return err == nil && string(have) == version
}

// goBuild builds a command into path.
func goBuild(ctx context.Context, root, path, target string) error {
	// Another process may be running the old program: build aside and rename.
	tmp := path + ".new"
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", tmp, target)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: build %s: %w\n%s", ErrMissing, target, err, out)
	}
	return os.Rename(tmp, path)
}

// requiredVersion reads a module's version from go.mod.
func requiredVersion(root, module string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("read go.mod: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) >= 2 && fields[0] == module {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("%w: %s is not in go.mod", ErrMissing, module)
}

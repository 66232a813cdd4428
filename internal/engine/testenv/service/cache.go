package service

import (
	"context"
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

// cached returns the path of root/.cache/name, filled once for a version: a
// stamp beside it says which. Concurrent test processes wait for each other.
func cached(root, name, version string, fill func(path string) error) (string, error) {
	path := filepath.Join(root, ".cache", name)
	if isVersion(path, version) {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("make cache: %w", err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", fmt.Errorf("lock cache: %w", err)
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock cache: %w", err)
	}
	if isVersion(path, version) {
		return path, nil // another process did it meanwhile
	}
	if err := fill(path); err != nil {
		return "", err
	}
	if err := os.WriteFile(path+".version", []byte(version), 0o644); err != nil {
		return "", fmt.Errorf("stamp cache: %w", err)
	}
	return path, nil
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

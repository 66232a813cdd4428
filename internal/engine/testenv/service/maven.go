package service

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// archives fetches the Java archives that a POM names with Maven, which checks their sums, once,
// and returns their folder.
func archives(ctx context.Context, name string, pom []byte) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	return Cached(root, name+"/libs", sumOf(pom), func(path string) error {
		return fetchArchives(ctx, path, pom)
	})
}

func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func fetchArchives(ctx context.Context, path string, content []byte) error {
	maven, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("%w: mvn, to fetch %s", ErrMissing, path)
	}
	pom := filepath.Join(filepath.Dir(path), "pom.xml")
	if err := os.WriteFile(pom, content, 0o644); err != nil {
		return fmt.Errorf("write pom: %w", err)
	}
	tmp := path + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return fmt.Errorf("clear old download: %w", err)
	}
	cmd := exec.CommandContext(ctx, maven, "-q", "-B", "-f", pom,
		"dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+tmp)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: fetch %s: %w\n%s", ErrMissing, path, err, bytes.TrimSpace(out))
	}
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("remove the old archives: %w", err)
	}
	return os.Rename(tmp, path)
}

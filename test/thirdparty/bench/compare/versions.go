package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// moduleVersion is a module's, as it was built in.
func moduleVersion(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dep := range info.Deps {
		if dep.Path == module {
			return dep.Version
		}
	}
	return "unknown"
}

// natsVersion is that of the server which the tests build, too.
func natsVersion() string {
	root, _ := service.Root()
	text, err := os.ReadFile(filepath.Join(root, ".cache", "bin", "nats-server.version"))
	if err != nil {
		return "nats-server"
	}
	return "nats-server " + string(text)
}

// kafkaVersion is that which the tests fetch, too.
func kafkaVersion() string {
	root, _ := service.Root()
	text, err := os.ReadFile(filepath.Join(root, "internal", "engine", "testenv", "service", "kafka-pom.xml"))
	if err != nil {
		return "Kafka of an unknown version"
	}
	_, dependencies, _ := strings.Cut(string(text), "<dependencies>")
	_, version, _ := strings.Cut(dependencies, "<version>")
	version, _, _ = strings.Cut(version, "<")
	return "Kafka " + version
}

func bullVersion() string {
	var manifest struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	text, err := bullFiles.ReadFile("bullmq/package.json")
	if err != nil || json.Unmarshal(text, &manifest) != nil {
		return "unknown"
	}
	return manifest.Dependencies["bullmq"]
}

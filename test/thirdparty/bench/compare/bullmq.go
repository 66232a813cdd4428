package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// bullFiles are the program that speaks for BullMQ, and its versions.
//
//go:embed bullmq
var bullFiles embed.FS

// bull is BullMQ in a process of Node, which does what is asked on its standard
// input.
type bull struct {
	process *exec.Cmd
	input   io.WriteCloser
	answers chan bullAnswer
	calls   sync.Mutex // one at a time
	taker   taker
}

// bullRequest is one line to the process.
type bullRequest struct {
	Do      string `json:"do"`
	First   int    `json:"first"`
	Count   int    `json:"count"`
	Size    int    `json:"size"`
	Callers int    `json:"callers"`
	Due     int64  `json:"due"`  // Unix time in milliseconds
	Step    int64  `json:"step"` // milliseconds
}

// bullAnswer is one line from it: to a request, or that a load has come.
type bullAnswer struct {
	OK    bool    `json:"ok"`
	Error string  `json:"error"`
	At    []int64 `json:"at"` // Unix time in milliseconds, by message
	Twice int64   `json:"twice"`
}

// installBull returns the folder of the program with its libraries, which npm
// fetches once.
func installBull(ctx context.Context, root string) (string, error) {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", fmt.Errorf("%w: this machine has no %s", errSkip, program)
		}
	}
	hash := sha256.New()
	for _, name := range []string{"package.json", "peer.js"} {
		text, err := bullFiles.ReadFile("bullmq/" + name)
		if err != nil {
			return "", err
		}
		_, _ = hash.Write(text)
	}
	folder := filepath.Join(root, ".cache", "bullmq-"+hex.EncodeToString(hash.Sum(nil)[:6]))
	if _, err := os.Stat(folder); err == nil {
		return folder, nil
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return "", err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(folder), "bullmq-new-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(fresh) }()
	if err := os.CopyFS(fresh, bullFiles); err != nil {
		return "", err
	}
	npm := exec.CommandContext(ctx, "npm", "install", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = filepath.Join(fresh, "bullmq")
	if output, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: npm could not fetch BullMQ: %w: %.500s", errSkip, err, output)
	}
	return folder, os.Rename(npm.Dir, folder)
}

func newBull(ctx context.Context, root string, m *memory) (*bull, error) {
	folder, err := installBull(ctx, root)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(m.Addr())
	if err != nil {
		return nil, err
	}
	p := &bull{answers: make(chan bullAnswer)}
	p.process = exec.CommandContext(context.WithoutCancel(ctx), "node", "peer.js", port, strconv.Itoa(handlers))
	p.process.Dir, p.process.Stderr = folder, os.Stderr
	p.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if p.input, err = p.process.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := p.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.process.Start(); err != nil {
		return nil, err
	}
	go p.read(output)
	return p, nil
}

// read ends when the process does.
func (p *bull) read(output io.Reader) {
	defer close(p.answers)
	for lines := json.NewDecoder(output); ; {
		var answer bullAnswer
		if err := lines.Decode(&answer); err != nil {
			return
		}
		if answer.At == nil {
			p.answers <- answer
			continue
		}
		to := p.taker.to.Load()
		to.twice.Add(answer.Twice)
		for i, at := range answer.At {
			to.noteAt(identity(to.first+i), time.UnixMilli(at))
		}
	}
}

func (p *bull) ask(ctx context.Context, request bullRequest) error {
	p.calls.Lock()
	defer p.calls.Unlock()
	line, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if _, err := io.Copy(p.input, bytes.NewReader(append(line, '\n'))); err != nil {
		return fmt.Errorf("ask BullMQ: %w", err)
	}
	select {
	case answer, open := <-p.answers:
		if !open {
			return errors.New("node has ended")
		}
		if !answer.OK {
			return fmt.Errorf("BullMQ: %s", answer.Error)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("ask BullMQ: %w", ctx.Err())
	}
}

func (p *bull) schedule(ctx context.Context, l load) error {
	return p.ask(ctx, bullRequest{
		Do: "schedule", First: l.first, Count: l.count, Size: l.size, Callers: l.callers, Due: l.due.UnixMilli(), Step: l.step.Milliseconds(),
	})
}

func (p *bull) deliver(ctx context.Context, to *arrivals) error {
	p.taker.to.Store(to)
	return p.ask(ctx, bullRequest{Do: "deliver", First: to.first, Count: len(to.at)})
}

func (p *bull) close(context.Context) error {
	_ = p.input.Close() // The process ends at the end of its input, if it does not hang.
	hung := time.AfterFunc(patience, func() { _ = p.process.Process.Kill() })
	defer hung.Stop()
	for range p.answers {
		continue // until the reader has ended
	}
	return p.process.Wait()
}

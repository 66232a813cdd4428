//go:build linux

package power

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
)

// Disk is a folder on a disk of its own, with a cache that is lost when its power is cut.
//
// What is written to a file is on the disk once the file was synced: by fsync or fdatasync, or
// because it was opened with O_SYNC or O_DSYNC. A cut takes some of the writes since then, the
// latest ones: a file is left as a moment between its last sync and the cut has seen it, another
// file at another moment. That is what a file system with a journal leaves which writes data
// before it writes sizes, as ext4 does by default. Names (create, rename, remove) are on the disk
// at once.
//
// A process of its own serves it: one that starts programs in a folder which it serves itself
// would wait for itself.
type Disk struct {
	dir     string
	process *exec.Cmd
	ask     *json.Encoder
	asked   io.Closer
	answers *json.Decoder
}

const (
	dirEnv  = "DELAYBRIDGE_DISK"
	seedEnv = "DELAYBRIDGE_DISK_SEED"
)

// request is what a disk's process is asked: "sync" or "cut". The end of its input unmounts the
// disk.
type request string

type answer struct {
	Lost int
	Err  string
}

// ServeDisk serves a disk and ends the process, if [NewDisk] has started it. A program that makes
// disks calls it first.
func ServeDisk() {
	dir := os.Getenv(dirEnv)
	if dir == "" {
		return
	}
	seed, _ := strconv.ParseUint(os.Getenv(seedEnv), 10, 64)
	if err := serve(dir, seed); err != nil {
		fmt.Fprintln(os.Stderr, "disk:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(dir string, seed uint64) error {
	requests, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	d, err := mount(dir, seed)
	if err != nil {
		return answers.Encode(answer{Err: err.Error()})
	}
	for a := (answer{}); ; {
		if err := answers.Encode(a); err != nil {
			return errors.Join(err, d.server.Unmount())
		}
		var r request
		if err := requests.Decode(&r); err != nil {
			return d.server.Unmount()
		}
		a = answer{}
		if r == "sync" {
			d.sync()
		} else if a.Lost, err = d.cut(); err != nil {
			a.Err = err.Error()
		}
	}
}

// NewDisk mounts a disk at a folder, which it makes. It needs root and /dev/fuse. The seed
// decides how much of the cache a cut takes.
func NewDisk(dir string, seed uint64) (*Disk, error) {
	d := &Disk{dir: dir, process: exec.Command(os.Args[0])} //nolint:gosec,noctx // it is this program; Close ends it
	d.process.Env = append(os.Environ(), dirEnv+"="+dir, seedEnv+"="+strconv.FormatUint(seed, 10))
	d.process.Stderr = os.Stderr
	in, err := d.process.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := d.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	d.ask, d.asked, d.answers = json.NewEncoder(in), in, json.NewDecoder(out)
	if err := d.process.Start(); err != nil {
		return nil, fmt.Errorf("serve a disk: %w", err)
	}
	if _, err := d.hear(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Dir is the folder that others use.
func (d *Disk) Dir() string { return d.dir }

// Close takes the disk away. Nobody may use it any more.
func (d *Disk) Close() error {
	return errors.Join(d.asked.Close(), d.process.Wait())
}

// Sync has all that was written on the disk.
func (d *Disk) Sync() error {
	_, err := d.do("sync")
	return err
}

// Cut takes what is not on the disk, and returns of how many bytes. Whoever used the disk must
// have ended.
func (d *Disk) Cut() (lost int, err error) { return d.do("cut") }

func (d *Disk) do(r request) (lost int, err error) {
	if err := d.ask.Encode(r); err != nil {
		return 0, fmt.Errorf("%s of a disk: %w", r, err)
	}
	return d.hear()
}

func (d *Disk) hear() (lost int, err error) {
	var a answer
	if err := d.answers.Decode(&a); err != nil {
		return 0, fmt.Errorf("a disk's process has ended: %w", err)
	}
	if a.Err != "" {
		err = errors.New(a.Err)
	}
	return a.Lost, err
}

//go:build linux

package power

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	fuse "github.com/hanwen/go-fuse/v2/fs"
	wire "github.com/hanwen/go-fuse/v2/fuse"
)

// disk is what [Disk] has in its own process.
type disk struct {
	below  string // where it keeps what others see
	random *rand.Rand
	server *wire.Server

	mu    sync.Mutex
	files map[uint64]*file // by inode number, those that were written to
}

// file is what the cache holds of one.
type file struct {
	mu     sync.Mutex
	synced []byte   // on the disk
	since  []change // in their order
}

// change is a write of data, or a new size.
type change struct {
	at      int64
	data    []byte
	resizes bool // to at
}

// mount mounts a disk at a folder, which keeps what it has beside it.
func mount(dir string, seed uint64) (*disk, error) {
	d := &disk{
		below: dir + "-below", files: map[uint64]*file{},
		random: rand.New(rand.NewPCG(seed, 1)), //nolint:gosec // a seed makes it repeatable
	}
	for _, dir := range []string{dir, d.below} {
		if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // a database runs as another user
			return nil, err
		}
	}
	root, err := fuse.NewLoopbackRoot(d.below)
	if err != nil {
		return nil, fmt.Errorf("mount a disk: %w", err)
	}
	var never time.Duration                                                             // A cut changes files, so the kernel must remember nothing of them.
	d.server, err = fuse.Mount(dir, &node{root.(*fuse.LoopbackNode), d}, &fuse.Options{ //nolint:forcetypeassert // it is one
		EntryTimeout: &never, AttrTimeout: &never,
		MountOptions: wire.MountOptions{DirectMount: true, AllowOther: true, MaxWrite: 1 << 20, Options: []string{"default_permissions"}},
	})
	if err != nil {
		return nil, fmt.Errorf("mount a disk: %w", err)
	}
	return d, nil
}

func (d *disk) sync() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.files {
		f.sync()
	}
}

func (d *disk) cut() (lost int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	err = filepath.WalkDir(d.below, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		number, _, err := identify(path)
		f := d.files[number]
		if err != nil || f == nil || len(f.since) == 0 {
			return err
		}
		n := f.cut(d.random.IntN(len(f.since) + 1))
		lost += n
		return os.WriteFile(path, f.synced, 0) //nolint:gosec // it exists, and keeps its mode
	})
	return lost, err
}

// identify returns a file's inode number, and how many names it has.
func identify(path string) (number, names uint64, err error) {
	var stat syscall.Stat_t
	err = syscall.Lstat(path, &stat)
	return stat.Ino, uint64(stat.Nlink), err //nolint:unconvert // other platforms have less bits
}

// fileAt is the file of a path below, as it was when it was first written to.
func (d *disk) fileAt(path string) (*file, error) {
	number, _, err := identify(path)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.files[number]
	if f == nil {
		f = &file{}
		if f.synced, err = os.ReadFile(path); err != nil { //nolint:gosec // it is ours
			return nil, err
		}
		d.files[number] = f
	}
	return f, nil
}

// forget is called where the last name of a file is taken: its number may be that of another
// file soon.
func (d *disk) forget(path string) (gone func()) {
	number, names, err := identify(path)
	if err != nil || names > 1 {
		return func() {}
	}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.files, number)
	}
}

func (f *file) sync() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keep(len(f.since))
}

func (f *file) add(c change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.since = append(f.since, c)
}

// cut keeps the first n changes, and returns how many bytes the others had.
func (f *file) cut(n int) (lost int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.since[n:] {
		lost += len(c.data)
	}
	f.keep(n)
	return lost
}

// keep puts the first n changes on the disk, and forgets the others.
func (f *file) keep(n int) {
	for _, c := range f.since[:n] {
		end := int(c.at) + len(c.data)
		if grown := end - len(f.synced); grown > 0 {
			f.synced = append(f.synced, make([]byte, grown)...)
		}
		copy(f.synced[c.at:], c.data)
		if c.resizes {
			f.synced = f.synced[:c.at]
		}
	}
	f.since = nil
}

// node is a file or a folder.
type node struct {
	*fuse.LoopbackNode

	disk *disk
}

// WrapChild implements [fuse.NodeWrapChilder].
func (n *node) WrapChild(_ context.Context, child fuse.InodeEmbedder) fuse.InodeEmbedder {
	return &node{child.(*fuse.LoopbackNode), n.disk} //nolint:forcetypeassert // all are
}

func (n *node) path(names ...string) string {
	return filepath.Join(append([]string{n.disk.below, n.Path(n.Root())}, names...)...)
}

// Open implements [fuse.NodeOpener].
func (n *node) Open(ctx context.Context, flags uint32) (fuse.FileHandle, uint32, syscall.Errno) {
	if flags&syscall.O_ACCMODE == syscall.O_RDONLY {
		opened, more, errno := n.LoopbackNode.Open(ctx, flags)
		if errno != 0 {
			return nil, 0, errno
		}
		return &reader{opened.(*fuse.LoopbackFile)}, more, 0 //nolint:forcetypeassert // all are
	}
	f, err := n.disk.fileAt(n.path()) // Before it is opened: that may make it empty.
	if err != nil {
		return nil, 0, fuse.ToErrno(err)
	}
	opened, more, errno := n.LoopbackNode.Open(ctx, flags)
	if errno != 0 {
		return nil, 0, errno
	}
	if flags&syscall.O_TRUNC != 0 {
		f.add(change{resizes: true})
	}
	return newWriter(opened, f, flags), more, 0
}

// Create implements [fuse.NodeCreater].
func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *wire.EntryOut) (*fuse.Inode, fuse.FileHandle, uint32, syscall.Errno) {
	inode, opened, more, errno := n.LoopbackNode.Create(ctx, name, flags, mode, out)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	f, err := n.disk.fileAt(n.path(name))
	if err != nil {
		return nil, nil, 0, fuse.ToErrno(err)
	}
	return inode, newWriter(opened, f, flags), more, 0
}

// Setattr implements [fuse.NodeSetattrer].
func (n *node) Setattr(ctx context.Context, handle fuse.FileHandle, in *wire.SetAttrIn, out *wire.AttrOut) syscall.Errno {
	size, isSized := in.GetSize()
	if !isSized {
		return n.LoopbackNode.Setattr(ctx, handle, in, out)
	}
	var f *file
	if w, isOpen := handle.(*writer); isOpen {
		f = w.file // Its name may be gone.
	} else {
		var err error
		if f, err = n.disk.fileAt(n.path()); err != nil {
			return fuse.ToErrno(err)
		}
	}
	errno := n.LoopbackNode.Setattr(ctx, handle, in, out)
	if errno == 0 {
		f.add(change{at: int64(size), resizes: true})
	}
	return errno
}

// Unlink implements [fuse.NodeUnlinker].
func (n *node) Unlink(ctx context.Context, name string) syscall.Errno {
	gone := n.disk.forget(n.path(name))
	errno := n.LoopbackNode.Unlink(ctx, name)
	if errno == 0 {
		gone()
	}
	return errno
}

// Rename implements [fuse.NodeRenamer].
func (n *node) Rename(ctx context.Context, name string, parent fuse.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	to := parent.(*node) //nolint:forcetypeassert // all are
	gone := n.disk.forget(to.path(newName))
	errno := n.LoopbackNode.Rename(ctx, name, to.LoopbackNode, newName, flags)
	if errno == 0 && flags == 0 {
		gone()
	}
	return errno
}

// CopyFileRange implements [fuse.NodeCopyFileRanger]: the kernel copies by reading and writing.
func (*node) CopyFileRange(context.Context, fuse.FileHandle, uint64, *fuse.Inode, fuse.FileHandle, uint64, uint64, uint64) (uint32, syscall.Errno) {
	return 0, syscall.ENOSYS
}

// reader is an open file. The kernel must not write past us, and takes a file that it may
// reach past us for reading as one that it always may.
type reader struct{ *fuse.LoopbackFile }

// PassthroughFd implements [fuse.FilePassthroughFder].
func (*reader) PassthroughFd() (int, bool) { return 0, false }

// writer is a file that is open for writing.
type writer struct {
	reader

	file   *file
	isSync bool // each write is a sync
}

func newWriter(opened fuse.FileHandle, f *file, flags uint32) *writer {
	return &writer{reader{opened.(*fuse.LoopbackFile)}, f, flags&(syscall.O_SYNC|syscall.O_DSYNC) != 0} //nolint:forcetypeassert // all are
}

// Write implements [fuse.FileWriter].
func (w *writer) Write(ctx context.Context, data []byte, at int64) (uint32, syscall.Errno) {
	w.file.mu.Lock()
	defer w.file.mu.Unlock()
	n, errno := w.LoopbackFile.Write(ctx, data, at)
	if errno == 0 && n > 0 {
		w.file.since = append(w.file.since, change{at: at, data: slices.Clone(data[:n])})
		if w.isSync {
			w.file.keep(len(w.file.since))
		}
	}
	return n, errno
}

// Fsync implements [fuse.FileFsyncer].
func (w *writer) Fsync(context.Context, uint32) syscall.Errno {
	w.file.sync()
	return 0
}

// Allocate implements [fuse.FileAllocater].
func (*writer) Allocate(context.Context, uint64, uint64, uint32) syscall.Errno {
	return syscall.EOPNOTSUPP // The C library writes zeroes then.
}

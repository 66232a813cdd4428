//go:build linux

package partition

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Link is what happens to the packets of one direction between two hosts.
type Link struct {
	// Cut drops all of them, silently.
	Cut bool
	// Loss is the share that is dropped, from 0 to 1.
	Loss float64
	// Delay comes on top for each, and a random part of Jitter, by which they pass each other.
	Delay, Jitter time.Duration
}

// Direction is from one host to another.
type Direction struct{ From, To *Host }

// Network connects hosts with each other: each has a device of the kernel (TUN) in a namespace
// of its own, and all that leaves one is handed to another here. Namespaces and devices have no
// name outside and end with the process, however that ends.
type Network struct {
	number byte

	mu    sync.RWMutex
	hosts map[netip.Addr]*Host
	links map[Direction]Link
	wires sync.WaitGroup

	dropped atomic.Int64 // packets
}

// Host is one of a network's.
type Host struct {
	Name string
	IP   netip.Addr

	device *os.File
	do     chan func() // what its thread is asked, nil for a host in the namespace of this process
}

// NewNetwork is a network with the host "outside", in the namespace of this process. The number
// keeps its addresses apart from those of other networks here.
func NewNetwork(number byte) (*Network, *Host, error) {
	n := &Network{number: number, hosts: map[netip.Addr]*Host{}}
	outside := &Host{Name: "outside"}
	if err := n.join(outside); err != nil {
		return nil, nil, err
	}
	return n, outside, nil
}

// NewHost makes a host in a namespace of its own.
func (n *Network) NewHost(name string) (*Host, error) {
	h := &Host{Name: name, do: make(chan func())}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // For good: the thread ends with the goroutine.
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = errors.Join(setUp("lo"), n.join(h))
		}
		made <- err
		for do := range h.do {
			do()
		}
	}()
	if err := <-made; err != nil {
		close(h.do)
		return nil, fmt.Errorf("make host %s: %w", name, err)
	}
	return h, nil
}

// Do calls a function on a thread in the host's namespace, where processes that it starts stay,
// and sockets that it opens.
func (h *Host) Do(call func() error) error {
	done := make(chan error, 1)
	h.do <- func() { done <- call() }
	return <-done
}

// join makes the device of a host, in the namespace of the calling thread.
func (n *Network) join(h *Host) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	h.IP = netip.AddrFrom4([4]byte{10, n.number, 0, byte(len(n.hosts) + 1)})
	var err error
	if h.device, err = newDevice(fmt.Sprintf("part%d", n.number), h.IP); err != nil {
		return err
	}
	n.hosts[h.IP] = h
	n.wires.Go(func() { n.carry(h) })
	return nil
}

// Close takes the network away. Processes on it have ended, or hear nothing more.
func (n *Network) Close() {
	for _, h := range n.Hosts() {
		_ = h.device.Close()
		if h.do != nil {
			close(h.do)
		}
	}
	n.wires.Wait()
}

// Hosts are all of them.
func (n *Network) Hosts() []*Host {
	n.mu.RLock()
	defer n.mu.RUnlock()
	var all []*Host
	for _, h := range n.hosts {
		all = append(all, h)
	}
	return all
}

// Set says what happens from now on to packets: to those of directions that it does not name,
// nothing.
func (n *Network) Set(links map[Direction]Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links = links
}

// carry hands on what a host sends, until its device is closed.
func (n *Network) carry(from *Host) {
	packet := make([]byte, 1<<16)
	for {
		size, err := from.device.Read(packet)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err == nil {
			n.pass(from, packet[:size])
		}
	}
}

// pass hands on one packet, or not.
func (n *Network) pass(from *Host, packet []byte) {
	const header, destination = 20, 16 // of IPv4
	if len(packet) < header || packet[0]>>4 != 4 {
		return // The kernel's own of IPv6.
	}
	addr, _ := netip.AddrFromSlice(packet[destination:header])
	n.mu.RLock()
	to := n.hosts[addr]
	link := n.links[Direction{from, to}]
	n.mu.RUnlock()
	if to == nil || link.Cut || rand.Float64() < link.Loss { //nolint:gosec // no secret
		n.dropped.Add(1)
		return
	}
	if link.Delay+link.Jitter == 0 {
		_, _ = to.device.Write(packet) // A host that is gone hears nothing.
		return
	}
	late := append([]byte(nil), packet...)
	wait := link.Delay + time.Duration(rand.Int64N(int64(link.Jitter)+1)) //nolint:gosec // no secret
	time.AfterFunc(wait, func() { _, _ = to.device.Write(late) })         // TCP's windows bound how many wait.
}

// newDevice makes a TUN device with an address of a network of 256, and opens it.
func newDevice(name string, ip netip.Addr) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err == nil {
		err = errors.Join(address(name, unix.SIOCSIFADDR, ip.As4()), address(name, unix.SIOCSIFNETMASK, [4]byte{255, 255, 255, 0}), setUp(name))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make device %s: %w", name, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// address sets one of a device's, in the namespace of the calling thread.
func address(device string, what uint, ip [4]byte) error {
	return onDevice(device, func(fd int, request *unix.Ifreq) error {
		if err := request.SetInet4Addr(ip[:]); err != nil {
			return err
		}
		return unix.IoctlIfreq(fd, what, request)
	})
}

// setUp switches a device on.
func setUp(device string) error {
	return onDevice(device, func(fd int, request *unix.Ifreq) error {
		request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
	})
}

func onDevice(device string, do func(fd int, request *unix.Ifreq) error) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	request, err := unix.NewIfreq(device)
	if err != nil {
		return err
	}
	return do(fd, request)
}

package config

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes.
type Size int

// The units of a [Size], largest first.
var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"GiB", 1 << 30},
	{"MiB", 1 << 20},
	{"KiB", 1 << 10},
	{"GB", 1e9},
	{"MB", 1e6},
	{"kB", 1e3},
	{"KB", 1e3},
	{"B", 1},
}

// String writes the size with the largest binary unit that needs no fraction.
func (s Size) String() string {
	for _, unit := range sizeUnits[:3] {
		if s != 0 && int64(s)%unit.bytes == 0 {
			return strconv.FormatInt(int64(s)/unit.bytes, 10) + unit.name
		}
	}
	return strconv.Itoa(int(s))
}

// ParseSize reads a size: whole bytes, or a whole number of KiB, MiB, GiB, kB, MB or GB.
func ParseSize(text string) (Size, error) {
	number, factor := text, int64(1)
	for _, unit := range sizeUnits {
		if before, ok := strings.CutSuffix(text, unit.name); ok {
			number, factor = strings.TrimSpace(before), unit.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n > math.MaxInt/factor || n < math.MinInt/factor {
		return 0, errors.New("is not a size: give bytes, or a unit, as 960KiB or 1MiB")
	}
	return Size(n * factor), nil
}

const day = 24 * time.Hour

var (
	longUnits = map[string]time.Duration{"d": day, "w": 7 * day}
	// A part of a duration: a decimal number and its unit.
	durationPart = regexp.MustCompile(`^([0-9]*\.?[0-9]*)([a-zµμ]+)`)

	errDuration = errors.New("is not a duration: give a number and a unit, as 500ms, 30s, 10m, 2h, 1d or 1w")
)

// ParseDuration reads a duration in Go's syntax, with the units d and w besides.
func ParseDuration(text string) (time.Duration, error) {
	if !strings.ContainsAny(text, "dw") {
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, errDuration
		}
		return d, nil
	}
	rest, negative := strings.CutPrefix(text, "-")
	var sum time.Duration
	for rest != "" {
		match := durationPart.FindStringSubmatch(rest)
		if match == nil {
			return 0, errDuration
		}
		part, err := parsePart(match[1], match[2])
		if err != nil || sum > math.MaxInt64-part {
			return 0, errDuration
		}
		sum += part
		rest = rest[len(match[0]):]
	}
	if negative {
		sum = -sum
	}
	return sum, nil
}

// ParseShift reads a duration that may have a sign, + or -.
func ParseShift(text string) (time.Duration, error) {
	digits, isEarlier := strings.CutPrefix(text, "-")
	if !isEarlier {
		digits = strings.TrimPrefix(digits, "+")
	}
	d, err := ParseDuration(digits)
	switch {
	case err != nil:
		return 0, err
	case strings.HasPrefix(digits, "-") || strings.HasPrefix(digits, "+"): // It would say the opposite.
		return 0, errDuration
	case isEarlier:
		return -d, nil
	default:
		return d, nil
	}
}

func parsePart(number, unit string) (time.Duration, error) {
	factor, long := longUnits[unit]
	if !long {
		return time.ParseDuration(number + unit)
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, fmt.Errorf("parse number: %w", err)
	}
	product := n * float64(factor)
	if product >= math.MaxInt64 {
		return 0, errDuration
	}
	return time.Duration(product), nil
}

// formatDuration writes a duration as people do: 60s and 10m instead of 1m0s and 10m0s.
func formatDuration(d time.Duration) string {
	if d < 2*time.Minute && d%time.Second == 0 {
		return strconv.Itoa(int(d/time.Second)) + "s"
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

package main

import (
	"fmt"
	"strconv"
	"time"
)

// number groups digits by thin blanks: 1 234 567.
func number(n int64) string {
	text := strconv.FormatInt(n, 10)
	start := 0
	if n < 0 {
		start = 1
	}
	for i := len(text) - 3; i > start; i -= 3 {
		text = text[:i] + " " + text[i:]
	}
	return text
}

// plural is a number of things: "1 file", "2 000 files".
func plural[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return number(int64(n)) + " " + noun + "s"
}

// short is a number to three digits: 52.1 k.
func short(v float64) string {
	switch {
	case v >= 1e9:
		return three(v/1e9) + " G"
	case v >= 1e6:
		return three(v/1e6) + " M"
	case v >= 1e4:
		return three(v/1e3) + " k"
	}
	return number(int64(v + 0.5))
}

func three(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// bytesText is a size in decimal units.
func bytesText(n int64) string {
	v := float64(n)
	switch {
	case v >= 1e12:
		return three(v/1e12) + " TB"
	case v >= 1e9:
		return three(v/1e9) + " GB"
	case v >= 1e6:
		return three(v/1e6) + " MB"
	case v >= 1e3:
		return three(v/1e3) + " kB"
	}
	return strconv.FormatInt(n, 10) + " B"
}

// span is a duration as a person says it.
func span(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
}

// ago is how long before now a moment was.
func ago(now, t time.Time) string {
	d := now.Sub(t)
	switch {
	case d < 0:
		return t.UTC().Format(time.DateTime)
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d days ago", int(d.Hours()/24))
}

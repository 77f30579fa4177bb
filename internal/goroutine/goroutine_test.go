package goroutine

import (
	"runtime"
	"testing"
)

// BenchmarkReserve starts goroutines that use 10 KiB of stack, as attempts and served calls do, without and with
// Reserve.
func BenchmarkReserve(b *testing.B) {
	for _, c := range []struct {
		name  string
		begin func()
	}{{"Without", func() {}}, {"With", Reserve}} {
		b.Run(c.name, func(b *testing.B) {
			done := make(chan struct{})
			for b.Loop() {
				go func() {
					c.begin()
					descend(18)
					done <- struct{}{}
				}()
				<-done
			}
		})
	}
}

// descend takes about 600 bytes of stack for each level.
//
//go:noinline
func descend(levels int) {
	var room [512]byte
	if levels > 0 {
		descend(levels - 1)
	}
	runtime.KeepAlive(&room)
}

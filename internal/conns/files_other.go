//go:build !linux && !darwin

package conns

// openFiles is what is certain where nothing tells.
func openFiles() uint64 { return fewFiles }

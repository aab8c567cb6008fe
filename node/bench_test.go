package node

import "testing"

func BenchmarkOpenDGX(b *testing.B) {
	for b.Loop() {
		if _, err := Open("sim:dgx", b.TempDir()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFactsDGX(b *testing.B) {
	n, err := Open("sim:dgx", b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := n.Facts(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

package sysfs

type FS struct{}

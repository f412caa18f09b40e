package config

import "errors"

// ErrFamily means that the checkpoint's model_type is not supported.
var ErrFamily = errors.New("unsupported model family")

// ErrFormat means that the checkpoint stores its weights in a format that is not supported.
var ErrFormat = errors.New("this weight format is not supported")

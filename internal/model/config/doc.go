// Package config turns a checkpoint's config.json into one checked description of a model.
//
// It reads both spellings of the file: the older one (rope_theta and rope_scaling at the top level) and the one
// transformers 5 writes (rope_parameters, layer lists). The output is a Description, such as *DSA or *V4, in which
// every optional field has its value; its Config has the fields that models of all families have. Nothing else in the
// project reads config.json. Every problem of a file is reported at once.
package config

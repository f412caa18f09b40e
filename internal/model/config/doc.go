// Package config reads a checkpoint's config.json into a checked description of the model.
//
// It supports both spellings of the fields: the older one (rope_theta and rope_scaling at the top level), and that of
// transformers 5 (rope_parameters, lists of layer types). The output is a Description, such as *DSA or *V4, in which
// every optional field has its value; its Config has the fields that models of all families have. No other package
// reads config.json. All problems of a file are returned together.
package config

package kernel

import "reflect"

// Replacement holds the functions with which Replace replaces tensors and weights. Arguments whose function is nil are
// not changed.
type Replacement struct {
	Tensor  func(Tensor) Tensor // called for tensors that are not the zero Tensor
	Matrix  func(Matrix) Matrix
	Experts func(Experts) Experts
}

// Replace copies an operation and replaces every tensor and weight in the copy, for devices that forward operations to
// another device. Slices in the arguments are copied too. It uses reflection and allocates.
func Replace(op Op, by Replacement) Op {
	args := reflect.New(reflect.TypeOf(op)).Elem()
	args.Set(reflect.ValueOf(op))
	by.walk(args)
	return args.Interface().(Op)
}

func (by *Replacement) walk(v reflect.Value) {
	switch at := v.Addr().Interface().(type) {
	case *Tensor:
		if at.Given() && by.Tensor != nil {
			*at = by.Tensor(*at)
		}
		return
	case *Matrix:
		if *at != nil && by.Matrix != nil {
			*at = by.Matrix(*at)
		}
		return
	case *Experts:
		if *at != nil && by.Experts != nil {
			*at = by.Experts(*at)
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			by.walk(v.Field(i))
		}
	case reflect.Slice:
		list := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(list, v)
		for i := range list.Len() {
			by.walk(list.Index(i))
		}
		v.Set(list)
	}
}

module vecasm

go 1.26

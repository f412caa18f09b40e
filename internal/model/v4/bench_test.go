package v4_test

const oracle = "../../../testdata/oracle/deepseek_v4-1"

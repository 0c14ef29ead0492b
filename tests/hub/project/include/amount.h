constant float amount = 3;

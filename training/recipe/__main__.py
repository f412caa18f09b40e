"""python3 -m recipe. The import is inside the condition, because worker processes load this module and must not load
torch."""

if __name__ == "__main__":
    from .command import main

    main()

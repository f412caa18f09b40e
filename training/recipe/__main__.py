"""python3 -m recipe. The import is inside, so that the processes that make data, which load this module again, load
no torch."""

if __name__ == "__main__":
    from .command import main

    main()
